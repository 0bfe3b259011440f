-- nvim-dap joins a session that is stopped, goes to a breakpoint of its own, steps, and leaves.
-- From the environment: PORT, CONFIGURATION, PROGRAM, LINE, NEXT, and ANSWER, the file for what it saw.
local dap = require("dap")
local wanted = { work = tonumber(vim.env.LINE), next = tonumber(vim.env.NEXT) }
local seen = { reasons = {} }

local function at(line)
  return vim.wait(20000, function()
    local session = dap.session()
    local frame = session and session.stopped_thread_id and session.current_frame
    return frame and (line == nil or frame.line == line)
  end, 10)
end

vim.fn.input = function() -- the person types the port
  return vim.env.PORT
end
dofile(vim.env.CONFIGURATION) -- that of the guide
dap.listeners.after.event_stopped["test"] = function(_, body)
  table.insert(seen.reasons, body.reason)
end
vim.cmd("edit " .. vim.env.PROGRAM)
vim.api.nvim_win_set_cursor(0, { wanted.work, 0 })
dap.set_breakpoint()
dap.run(dap.configurations.python[#dap.configurations.python])
seen.joined = at(nil)
dap.continue()
seen.hit = at(wanted.work)
dap.step_over()
seen.stepped = at(wanted.next)
seen.name = dap.session().current_frame.name
dap.disconnect()
seen.left = vim.wait(10000, function()
  return dap.session() == nil
end, 10)
vim.fn.writefile({ vim.fn.json_encode(seen) }, vim.env.ANSWER)
vim.cmd("qall!")
