"""Models on Triton: the repository (`models/`), a local server for it, and a typed client."""
