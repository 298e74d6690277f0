"""Who is compared. Their programs are in ``tests.bench.contenders``, which may need an interpreter of their own."""
