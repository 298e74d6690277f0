-- For the scripts as Redis gets them, with their includes in place; tests/unit/lua/test_scripts.py makes them.
std = "lua51"
read_globals = { "cjson", "redis", "struct", "KEYS", "ARGV" }
max_line_length = 120
