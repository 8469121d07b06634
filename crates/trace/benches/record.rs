//! What recording one monotask costs the worker that ran it (budget: 100 ns).

fn main() {}
