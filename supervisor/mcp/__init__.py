"""The Model Context Protocol: few tools for tasks, over the operations of a relay."""
