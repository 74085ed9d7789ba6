"""Policies: one batched linear core, thin shells around it."""
