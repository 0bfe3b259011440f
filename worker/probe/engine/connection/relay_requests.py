"""Receives the relay's own requests, beside those of DAP and over the same connection.

The reading thread itself passes a question on to a stopped thread, at once. All other requests are
left to pydevd's command thread, as pydevd does with its own, so that the reader never stops
reading.
"""

import json
import sys
import traceback

COMMAND = "relay"
_MARK = b'"command":"relay"'
_HEAD = 64  # The first bytes of a request, which have its command.
_MOST_WORDS = 2000  # Characters of a traceback that answers a request.
_decode = json.JSONDecoder().decode


class RelayRequests(object):
    def __init__(self, probe):
        self.probe = probe

    def hook(self):
        module = sys.modules["_pydevd_bundle.pydevd_process_net_command_json"]
        processor, name = module.PyDevJsonCommandProcessor, "process_net_command_json"
        others = getattr(processor, name)

        def process(this, db, contents, *more):
            ours = (
                db is self.probe.engine.db and type(contents) is bytes and _MARK in contents[:_HEAD]
            )
            if not ours or not db.authentication.is_authenticated():
                return others(this, db, contents, *more)
            return self.take(_decode(contents.decode("utf-8")))

        self.probe.engine.hooks.swap(processor, name, process)

    def take(self, request):
        db = self.probe.engine.db
        for listener in db.dap_messages_listeners:
            listener.after_receive(request)
        arguments = request["arguments"]
        do = arguments.pop("do")
        question = self.probe.questions.get(do)
        if question is not None:
            self.answer(request["seq"], question, arguments)
        else:
            db.post_method_as_internal_command(
                "*", self.work, request["seq"], self.probe.commands.get(do), arguments
            )

    def work(self, db, seq, command, arguments):
        self.answer(seq, command, arguments)

    def answer(self, seq, command, arguments):
        response = {"type": "response", "request_seq": seq, "command": COMMAND, "success": True}
        try:
            response["body"] = {"result": command(**arguments)}
        except BaseException:  # the program's classes may raise any
            response["success"] = False
            response["message"] = traceback.format_exc()[-_MOST_WORDS:]
        self.probe.engine.send(response)
