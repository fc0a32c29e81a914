"""Executors of delegated work behind one small port (`infra.harness.port`): skills, MCP servers, agents, a chat endpoint."""
