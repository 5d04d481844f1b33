//! Unix domain sockets to listen on: their files, stale files, and permissions.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use config::UnixSocket;
use socket2::{Domain, SockAddr, Socket, Type};

use super::tcp::BACKLOG;

/// A bound socket. Its file is removed when the value is dropped.
#[derive(Debug)]
pub(crate) struct BoundSocket {
    pub(super) listener: UnixListener,
    pub(super) file: SocketFile,
}

/// The file of a socket that this process has made.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode number: another process may have put its own socket there meanwhile.
    identity: (u64, u64),
}

/// Binds a socket. A stale socket, on which no process listens, is replaced.
///
/// # Errors
/// The system's error; `AddrInUse` if another process listens, `AlreadyExists` if the path is not a socket.
pub(crate) fn bind(wanted: &UnixSocket) -> io::Result<BoundSocket> {
    let path = &wanted.path;
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => match UnixStream::connect(path) {
            // The socket was left behind by a process that has ended.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)?;
            }
            _ => return Err(io::ErrorKind::AddrInUse.into()),
        },
        Ok(_) => {
            let reason = "a file of this name exists and is not a socket";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, reason));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let metadata = std::fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.clone(), identity: (metadata.dev(), metadata.ino()) };
    // Clients cannot connect before `listen`, so the permissions apply to every client.
    std::fs::set_permissions(path, PermissionsExt::from_mode(wanted.mode))?;
    socket.listen(BACKLOG as i32)?;
    Ok(BoundSocket { listener: socket.into(), file })
}

impl SocketFile {
    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let metadata = std::fs::symlink_metadata(&self.path);
        if metadata.is_ok_and(|it| (it.dev(), it.ino()) == self.identity) {
            // If the file stays, the next process finds that no process listens on it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(folder: &tempfile::TempDir) -> UnixSocket {
        UnixSocket { path: folder.path().join("graphql.sock"), mode: 0o600 }
    }

    #[test]
    fn a_socket_has_its_permissions_and_goes_with_its_listener() {
        let folder = tempfile::tempdir().expect("a folder");
        let wanted = wanted(&folder);
        let bound = bind(&wanted).expect("a socket");
        let mode = std::fs::metadata(&wanted.path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(UnixStream::connect(&wanted.path).is_ok());
        drop(bound);
        assert!(!wanted.path.exists());
    }

    #[test]
    fn a_stale_socket_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let wanted = wanted(&folder);
        drop(UnixListener::bind(&wanted.path).expect("a socket"));
        assert!(wanted.path.exists(), "the file outlives its process");
        let _bound = bind(&wanted).expect("the stale socket is replaced");
        assert!(UnixStream::connect(&wanted.path).is_ok());
    }

    #[test]
    fn a_socket_in_use_and_a_file_that_is_not_a_socket_are_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let wanted = wanted(&folder);
        let first = bind(&wanted).expect("a socket");
        let error = bind(&wanted).expect_err("it is taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(UnixStream::connect(&wanted.path).is_ok());
        drop(first);
        std::fs::write(&wanted.path, "precious").expect("a file");
        let error = bind(&wanted).expect_err("the file is not a socket");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&wanted.path).expect("still there"), "precious");
    }

    #[test]
    fn the_socket_of_a_successor_is_not_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let wanted = wanted(&folder);
        let old = bind(&wanted).expect("a socket");
        std::fs::remove_file(&wanted.path).expect("removed by hand");
        let _new = bind(&wanted).expect("another socket");
        drop(old);
        assert!(UnixStream::connect(&wanted.path).is_ok());
    }
}
