"""An account whose balance is right after each call, and wrong at the end."""

from __future__ import annotations


class Account:
    def __init__(self, balance: int) -> None:
        self.balance = balance
        self.history: list[int] = []

    def deposit(self, amount: int) -> None:
        self.balance += amount
        self.history.append(amount)

    def withdraw(self, amount: int) -> None:
        self.balance -= amount
        self.history.append(-amount)


class Report:
    def __init__(self, account: Account) -> None:
        self.account = account

    def monthly(self) -> str:
        rows = vars(self.account)
        rows["balance"] = round(rows["balance"], -1)
        return f"{rows['balance']} after {len(self.account.history)} bookings"


account = Account(100)
account.deposit(55)
account.withdraw(31)
print(Report(account).monthly())
account.deposit(2)
print("balance", account.balance, "expected", 100 + sum(account.history))
