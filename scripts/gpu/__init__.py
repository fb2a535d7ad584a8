"""Search on an offline, metered GPU host: pack here, run one window there, go on in the next."""
