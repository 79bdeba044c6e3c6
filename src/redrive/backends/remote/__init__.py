"""What every store across a network needs: a connection a loop, the server's clock, letters remembered while they are claimed."""
