//! TCP sockets to listen on.

use std::net::SocketAddr;

/// The number of connections that may wait to be accepted; the system reduces it to `somaxconn`.
pub(super) const BACKLOG: u32 = 4_096;

/// Binds `address`.
///
/// # Errors
/// The system's error: the address is in use, not local, or not allowed.
pub fn bind(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
    if address.is_ipv6() {
        // Whether `[::]` includes IPv4 is a setting of the system; here it never does, so that a configuration means
        // the same everywhere.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG as i32)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_all_interfaces_can_have_the_same_port() {
        let v4 = bind(([0, 0, 0, 0], 0).into()).expect("a free port");
        let port = v4.local_addr().expect("bound").port();
        let v6 = std::net::Ipv6Addr::UNSPECIFIED;
        match bind((v6, port).into()) {
            Ok(_) => {}
            // A machine without IPv6 cannot show it.
            Err(error) => assert_ne!(error.kind(), std::io::ErrorKind::AddrInUse),
        }
    }
}
