//! Triggers, groups and subscribers: one resolution per group and event, shared bytes to all.
