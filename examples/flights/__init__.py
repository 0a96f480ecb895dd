"""A real job, the delays of New York's flights, run by three orchestrators with two or three transports each."""
