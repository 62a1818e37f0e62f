"""Where ranks come from: the zygote and the agent of a host, other hosts, Monarch, and the in-memory fake."""
