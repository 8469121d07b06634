"""Stores as real services, a small S3 server, and checks for leaked credentials."""
