"""One real job, the delays of New York's flights, run by three hosts with two or three transports each."""
