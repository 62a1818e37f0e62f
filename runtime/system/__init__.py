"""This process and this machine: what Linux, the C library and files say of them, and what ours leave behind."""
