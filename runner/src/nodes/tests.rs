//! Gateways in threads, and ranks that are threads of the test.
