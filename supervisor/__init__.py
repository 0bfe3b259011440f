"""The relay's one long-running process: the HTTP front, the sessions' proxies, and their keeping.

It owns no debug state: every session lives in a worker process of its own.
"""
