"""How Redis is reached: pools of connections, Sentinel, a primary that is none any more, names as bytes."""
