"""Stories of errors assert as tests do: pytest says what was compared."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.contract.api.error_stories")
