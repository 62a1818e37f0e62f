"""The debugger: ranks stop and ask, the notebook answers."""
