//! TCP sockets to listen on.

use std::net::SocketAddr;

/// How many connections may wait for being accepted; the system cuts it to `somaxconn`.
pub(super) const BACKLOG: u32 = 4_096;

/// Binds `address`.
///
/// # Errors
/// As the system says: taken, not ours, not allowed.
pub(crate) fn bind(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
    if address.is_ipv6() {
        // Whether `[::]` takes IPv4 too is a setting of the system; ours says what it says everywhere.
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
