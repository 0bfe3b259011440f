"""Bounds a child's wait in its handshake with the relay; pydevd would wait for ever."""

import time

# A child waits this long for the worker: many that come at once are served side by side.
_SILENCE_SECONDS = 15.0
_LOOK_SECONDS = 0.002  # The pause between two looks at whether the handshake is over.


class NoAnswer(Exception):
    """The relay has not answered: it is gone, or too busy."""


class Handshake(object):
    """Raises `NoAnswer` when the relay has sent nothing for `_SILENCE_SECONDS`."""

    def __init__(self, engine):
        self.engine = engine
        self.heard = time.monotonic()
        engine.listen(self)
        engine.db.wait_for_ready_to_run = self.wait

    def before_send(self, message):
        """pydevd calls this before it sends; `after_receive` after it has received."""

    def after_receive(self, message):
        self.heard = time.monotonic()

    def wait(self):
        db = self.engine.db
        while not db.ready_to_run:
            if db.pydb_disposed or time.monotonic() - self.heard > _SILENCE_SECONDS:
                raise NoAnswer
            db.process_internal_commands()
            db._py_db_command_thread_event.clear()
            db._py_db_command_thread_event.wait(_LOOK_SECONDS)

    def end(self):
        del self.engine.db.wait_for_ready_to_run
        self.engine.unlisten(self)
