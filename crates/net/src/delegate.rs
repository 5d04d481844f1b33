//! Delegation of the stream traits.

/// Implements `AsyncRead` and `AsyncWrite` for an enum that holds one stream in each variant: every call goes to the
/// stream of the variant.
#[macro_export]
macro_rules! delegate_stream {
    ($type:ty { $($(#[$attribute:meta])* $variant:ident),+ $(,)? }) => {
        impl ::tokio::io::AsyncRead for $type {
            fn poll_read(
                self: ::std::pin::Pin<&mut Self>,
                context: &mut ::std::task::Context<'_>,
                buffer: &mut ::tokio::io::ReadBuf<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                match self.get_mut() {
                    $($(#[$attribute])* Self::$variant(stream) => {
                        ::std::pin::Pin::new(stream).poll_read(context, buffer)
                    })+
                }
            }
        }

        impl ::tokio::io::AsyncWrite for $type {
            fn poll_write(
                self: ::std::pin::Pin<&mut Self>,
                context: &mut ::std::task::Context<'_>,
                bytes: &[u8],
            ) -> ::std::task::Poll<::std::io::Result<usize>> {
                match self.get_mut() {
                    $($(#[$attribute])* Self::$variant(stream) => {
                        ::std::pin::Pin::new(stream).poll_write(context, bytes)
                    })+
                }
            }

            fn poll_write_vectored(
                self: ::std::pin::Pin<&mut Self>,
                context: &mut ::std::task::Context<'_>,
                parts: &[::std::io::IoSlice<'_>],
            ) -> ::std::task::Poll<::std::io::Result<usize>> {
                match self.get_mut() {
                    $($(#[$attribute])* Self::$variant(stream) => {
                        ::std::pin::Pin::new(stream).poll_write_vectored(context, parts)
                    })+
                }
            }

            fn is_write_vectored(&self) -> bool {
                match self {
                    $($(#[$attribute])* Self::$variant(stream) => stream.is_write_vectored(),)+
                }
            }

            fn poll_flush(
                self: ::std::pin::Pin<&mut Self>,
                context: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                match self.get_mut() {
                    $($(#[$attribute])* Self::$variant(stream) => {
                        ::std::pin::Pin::new(stream).poll_flush(context)
                    })+
                }
            }

            fn poll_shutdown(
                self: ::std::pin::Pin<&mut Self>,
                context: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                match self.get_mut() {
                    $($(#[$attribute])* Self::$variant(stream) => {
                        ::std::pin::Pin::new(stream).poll_shutdown(context)
                    })+
                }
            }
        }
    };
}
