//! Shared by the integration tests (owner: helper CONF).
