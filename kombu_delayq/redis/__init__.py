"""How Redis is reached: pools of connections, Sentinel, a primary that is demoted, names as bytes."""
