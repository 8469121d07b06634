"""Side-by-side runs against peers. See `bench/README.md`."""
