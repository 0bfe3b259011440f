// The client that adapters of VS Code are tested with joins a session, and prints what it saw.
// Arguments: port, path, a line that the program reaches again and again, and the line after it.
const { DebugClient } = require('@vscode/debugadapter-testsupport');

const [port, path, line, next] = process.argv.slice(2);

async function main() {
    const ide = new DebugClient('node', 'unused', 'python');
    ide.defaultTimeout = 20000;
    await ide.start(Number(port));
    // Its `launch` is initialize and launch; the breakpoint is set when we say `initialized`.
    await ide.hitBreakpoint({}, { path, line: Number(line) });
    const { threads } = (await ide.threadsRequest()).body;
    const threadId = threads[0].id;
    await Promise.all([
        ide.nextRequest({ threadId }),
        ide.assertStoppedLocation('step', { path, line: Number(next) }),
    ]);
    const stack = (await ide.stackTraceRequest({ threadId })).body;
    const frameId = stack.stackFrames[0].id;
    const { scopes } = (await ide.scopesRequest({ frameId })).body;
    const listed = await ide.variablesRequest(scopes[0]);
    await ide.setVariableRequest({ ...scopes[0], name: 'n', value: '"set"' });
    const value = (await ide.evaluateRequest({ expression: 'n', frameId })).body.result;
    await ide.disconnectRequest();
    console.log(JSON.stringify({ names: listed.body.variables.map((one) => one.name), value }));
    process.exit(0);
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
