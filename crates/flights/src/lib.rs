//! Work in flight that several wait for.
//!
//! Whoever asks for a key that nobody works on becomes the *leader*: the work starts at once, within the
//! leader's own task. Whoever asks for an equal key before the work is done becomes a *follower*, from
//! whatever core, and gets a clone of the same result. Then the flight is over; who asks now leads the next.
//!
//! - Nobody waits in order to be joined, and no result is given to anyone who asked after it was there.
//! - The work belongs to all who wait: it goes on when its leader leaves and is cancelled when the last one
//!   leaves.
//! - Work that breaks off (a panic, a core that stops) is told to all, as [`Broken`].
//!
//! Invariant: knows nothing of GraphQL or HTTP. What makes two requests equal is the key's business, and so is
//! everything that must keep them apart.

mod flight;
mod flights;

pub use flights::{Broken, FlightStats, Flights, Role};
