//! Starts brokers and other programs for tests and measurements.
//!
//! There is one rule for programs that are not installed ([`programs`]), one way to run a program beside a test and to
//! wait for it ([`ChildProcess`], [`eventually`]), and one module for each server: [`nats`], [`redis`], [`kafka`],
//! [`open_policy_agent`]. The measurements in `tools/benches` pin their brokers to a processor core and therefore start
//! them themselves, with the same command lines.
//!
//! The commands of developers (`cargo xtask`) use the second half: [`builds`] builds the programs of this workspace,
//! [`installation`] and [`kafka::download`] install third-party ones, and [`commands`] runs a program to its end.
//!
//! The crate depends on no other crate of the workspace, so that all of them can use it in their tests. The suites in
//! `tests/e2e/js` follow the same rules with their own modules.

pub mod builds;
mod children;
pub mod commands;
pub mod installation;
pub mod kafka;
pub mod nats;
pub mod open_policy_agent;
pub mod programs;
pub mod redis;
pub mod redis_groups;
mod waiting;

pub use children::ChildProcess;
pub use waiting::eventually;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// Returns the folder with the certificates of tests: `localhost.pem` with its key and its authority `ca.pem`, and the
/// same for clients.
pub fn certificates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/net/tests/certificates")
}

/// Returns an address of 127.0.0.1 with a port that was free a moment ago.
///
/// # Errors
/// No port is free.
pub fn free_address() -> std::io::Result<SocketAddr> {
    let [address] = free_addresses()?;
    Ok(address)
}

/// Returns different addresses of 127.0.0.1 with ports that were free a moment ago. All ports are held until the last
/// one is known: the system may give a port that was just closed again.
///
/// # Errors
/// There are not so many free ports.
pub fn free_addresses<const N: usize>() -> std::io::Result<[SocketAddr; N]> {
    let mut listeners = Vec::new();
    let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); N];
    for address in &mut addresses {
        let listener = TcpListener::bind(*address)?;
        *address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    #[test]
    fn addresses_of_one_call_differ() {
        for _ in 0..100 {
            let addresses = super::free_addresses::<8>().expect("free ports");
            let distinct: std::collections::BTreeSet<_> = addresses.iter().collect();
            assert_eq!(distinct.len(), addresses.len(), "{addresses:?}");
        }
    }
}
