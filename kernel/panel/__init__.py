"""JupyterLab's debugger on the ranks: one session of the Debug Adapter Protocol that covers notebook and ranks."""
