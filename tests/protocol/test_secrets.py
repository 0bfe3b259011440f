"""What looks secret: by its name, by itself, among arguments. And what does not."""

from __future__ import annotations

import time

import pytest

from debug_relay.protocol.secrets import (
    hide_in_code,
    hide_secrets,
    is_secret,
    looks_secret,
    masked,
    masked_arguments,
    masked_command,
    masked_environment,
)

KEY = "-----BEGIN RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN"


@pytest.mark.parametrize(
    "name",
    [
        "GITHUB_PAT", "SSHPASS", "MYSQLPASS", "STRIPE_SK", "SLACK_WEBHOOK", "X_SIGNATURE",
        "SESSIONID", "NETRC", "PIN", "CARD_PIN", "AUTH", "OTP", "sig", "AWS_CREDS", "ROOT_PW",
    ],
)  # fmt: skip
def test_names(name: str) -> None:
    assert looks_secret(name)
    assert masked_environment({name: "x"}) == {name: "***"}


@pytest.mark.parametrize(
    "name",
    [
        "KEY", "PWD", "BYPASS", "ENCOMPASS", "SESSION_ID", "XDG_SESSION_ID", "PATTERN", "PATH",
        "PINS", "SHIPPING", "SKU", "TASK", "SIGNATURE_VERSION", "pass_through", "PYTHONPATH",
        "NETRC_FILE", "PIN_COUNT", "VIRTUAL_ENV", "PYTHONHASHSEED", "COLUMNS",
    ],
)  # fmt: skip
def test_names_of_other_things(name: str) -> None:
    assert not looks_secret(name)
    assert masked_environment({name: "x"}) == {name: "x"}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("Server=db;Password=abc;Database=x", "Server=db;Password=***;Database=x"),
        ("Uid=me;Pwd=abc", "Uid=me;Pwd=***"),
        ("https://me:p@ss@host/x", "https://me:***@host/x"),
        ("redis://:pw@h", "redis://:***@h"),
        ("https://h/x?token=abc&page=2", "https://h/x?token=***&page=2"),
        ('{"password": "abc", "n": 1}', '{"password": "***", "n": 1}'),
        ("Authorization: Bearer abc", "Authorization: ***"),
        ("X-Api-Key: abc", "X-Api-Key: ***"),
        (f"see {JWT}.", "see ***."),
        ("ghp_" + "a1" * 18, "***"),
        ("https://hooks.slack.com/services/T0/B0/xyz", "https://hooks.slack.com/services/***"),
        (f"{KEY}\nabc\n-----END RSA PRIVATE KEY-----\n", "***"),
    ],
)
def test_values_under_any_name(value: str, told: str) -> None:
    assert masked_environment({"CONN": value}) == {"CONN": told}
    assert is_secret("CONN", value)


@pytest.mark.parametrize(
    "value",
    [
        "https://example.org:80/a@b", "PWD=/home/me", "a=1;b=2", "C:\\x", "12:30", "key=value",
        "password == 'x'", "path:/usr/bin", "sk-learn", "Note: this is plain",
    ],
)  # fmt: skip
def test_values_that_are_none(value: str) -> None:
    assert masked("value", value) == value


def test_to_unset_a_variable_tells_nothing() -> None:
    assert not is_secret("API_TOKEN", None)
    assert masked_environment({"API_TOKEN": None}) == {"API_TOKEN": None}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("app --api-key X --port 80", "app --api-key *** --port 80"),
        ("app --token=X --port=X", "app --token=*** --port=X"),
        ("app -password X -passwd=Y", "app -password *** -passwd=***"),
        ("app --no-auth x --ask-pass y", "app --no-auth x --ask-pass y"),
        ("app --auth-file x --max-tokens 5", "app --auth-file x --max-tokens 5"),
        ("app --password --verbose x", "app --password --verbose x"),
        ("app PASSWORD=X -e API_KEY=Y", "app PASSWORD=*** -e API_KEY=***"),
        ("app --url=https://me:X@h", "app --url=https://me:***@h"),
        ("app -Ddb.password=X", "app -Ddb.password=***"),
        # -p stands for much. Right behind it, what is no port, path or word is hidden …
        ("app -pSECRET -phunter2 -pS3cr!t", "app -p*** -p*** -p***"),
        ("app -p8080 -p8080:80 -p1-1024 -p 8080", "app -p8080 -p8080:80 -p1-1024 -p 8080"),
        ("app -print -print0 -path -p/x -prefix=A1", "app -print -print0 -path -p/x -prefix=A1"),
        ("pytest -pno:cov -pMyPlugin", "pytest -pno:cov -pMyPlugin"),
        # … and anything where the program is known for it.
        ("mysql -psecret -p x", "mysql -p*** -p x"),
        ("sudo -u me mysqldump -psecret db", "sudo -u me mysqldump -p*** db"),
        ("sshpass -p secret ssh -p 22 h", "sshpass -p *** ssh -p 22 h"),
        ("/usr/bin/curl -u me:X http://h", "/usr/bin/curl -u *** http://h"),
    ],
)
def test_arguments(line: str, told: str) -> None:
    assert " ".join(masked_command(line.split())) == told


def test_an_argument_may_be_a_header() -> None:
    args = ["-H", "Authorization: Basic abc", "-H", "Accept: */*"]
    assert masked_arguments(args) == ["-H", "Authorization: ***", "-H", "Accept: */*"]


def test_in_code_a_name_is_no_secret() -> None:
    plain = "token = make()\nlogin(password=token)\nif password == 'x': ...\n"
    assert hide_in_code(plain) == plain
    assert hide_in_code("password = 'hunter2'") == "password = '***'"
    assert hide_in_code("f(api_key='x')") == "f(api_key='***')"


@pytest.mark.parametrize(
    "piece", ["a", "a=", "a.b-", "://a:b@", "://:", "password: '", "token=", KEY, "eyJ", "ghp_"]
)
def test_long_texts_take_no_long_time(piece: str) -> None:
    text = piece * (500_000 // len(piece))
    began = time.perf_counter()
    hide_secrets(text)
    masked_arguments([text])
    assert time.perf_counter() - began < 5
