"""The prompt of `pellucid`, in a real terminal."""
