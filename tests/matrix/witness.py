"""Runs in every target, as its `sitecustomize`: Python 3.8 and later, standard library only.

A thread of it answers at a socket named after the pid: how fast this process computes, and whether
its children end well. Another one computes in one frame, without a call. Both are there before the
debugger comes, so what that leaves behind shows.
"""

import _thread
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time

FOLDER = os.environ.get("WITNESS_FOLDER", "")
ROUNDS, CALLS, TURNS = 3, 20000, range(100000)
asked, done, taken = _thread.allocate_lock(), _thread.allocate_lock(), []
quiet = []  # while our own children are born: they need no witness


def step(n):
    return n + 1


def paced(ask, tell, tell_seconds, clock):
    """Calls nothing that is written in Python: what a debugger leaves in its frame stays there."""
    while True:
        ask()
        began = clock()
        for n in TURNS:
            m = n  # noqa: F841  the work
        tell_seconds(clock() - began)
        tell()


def speed():
    """Seconds of processor time that a loop of calls takes, and one without."""
    return sorted(called() + uncalled() for _ in range(ROUNDS))[ROUNDS // 2]


def called():
    began = time.thread_time()
    n = 0
    for _ in range(CALLS):
        n = step(n)
    return time.thread_time() - began


def uncalled():
    asked.release()
    done.acquire()
    return taken.pop()


def leave():
    os._exit(0)


def children():
    """The exit codes of one child of each kind."""
    quiet.append(True)
    try:
        codes = {"Popen": subprocess.Popen([sys.executable, "-S", "-c", "pass"]).wait(30)}
        pid = os.fork()
        if pid == 0:
            step(1)
            os._exit(0)
        codes["fork"] = os.waitpid(pid, 0)[1]
        process = multiprocessing.get_context("fork").Process(target=leave)
        process.start()
        process.join(30)
        codes["multiprocessing"] = process.exitcode
        return codes
    finally:
        quiet.pop()


def serve(listener):
    while True:
        connection, _ = listener.accept()
        with connection:
            word = connection.recv(100).decode()
            try:
                answer = {"speed": speed, "children": children}[word]()
            except Exception as error:
                answer = repr(error)
            connection.sendall(json.dumps(answer).encode())
            # A child that was forked meanwhile has the connection too.
            connection.shutdown(socket.SHUT_RDWR)


def begin():
    if quiet:
        return
    listener = socket.socket(socket.AF_UNIX)
    path = os.path.join(FOLDER, f"{os.getpid()}.sock")
    listener.bind(path + ".new")
    listener.listen(5)
    os.rename(path + ".new", path)  # who sees it can connect
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    arguments = (asked.acquire, done.release, taken.append, time.thread_time)
    threading.Thread(target=paced, args=arguments, daemon=True).start()


if FOLDER:
    asked.acquire()
    done.acquire()
    begin()
    os.register_at_fork(after_in_child=begin)
