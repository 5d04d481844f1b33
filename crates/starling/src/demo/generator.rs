//! Drives the demo: advances the traffic at its pace, publishes its events, and applies announced delays.

use std::sync::Arc;

use events::{Message, Providers, SourceMessage, StreamRequest};
use tokio::time::MissedTickBehavior;

use super::PROVIDER;
use super::subgraphs::Board;
use super::traffic::{DELAYS_TOPIC, TICK};

/// Runs until it is aborted or the provider is closed.
pub async fn run(board: Board, providers: Arc<Providers>) {
    let Ok(provider) = providers.resolve(PROVIDER) else {
        tracing::error!("the demo's provider {PROVIDER} does not exist");
        return;
    };
    let delays = provider.subscribe(StreamRequest::new(vec![DELAYS_TOPIC.into()])).await;
    let mut delays = match delays {
        Ok(delays) => delays,
        Err(error) => {
            tracing::error!(%error, "the demo cannot subscribe to announced delays");
            return;
        }
    };
    let mut clock = tokio::time::interval(TICK);
    // A machine that slept must not replay the missed ticks.
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = clock.tick() => {
                let events = board.lock().tick();
                for event in events {
                    if let Err(error) = provider.publish(Message::new(&*event.topic, event.payload)).await {
                        tracing::warn!(%error, "an event of the demo was not published");
                    }
                }
            }
            message = delays.messages.recv() => match message {
                Some(SourceMessage::Event(event)) => {
                    board.lock().apply_delay(&event.payload);
                }
                Some(SourceMessage::Gap | SourceMessage::Progress(_)) => {}
                Some(SourceMessage::End(_)) | None => return,
            },
        }
    }
}
