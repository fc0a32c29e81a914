"""For tests of conversations: scripted sessions, and a pytest plugin that turns session files into tests."""
