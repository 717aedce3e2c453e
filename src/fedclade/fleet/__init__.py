"""How devices are reached: the protocol, the questions they are asked, and the simulated fleet."""
