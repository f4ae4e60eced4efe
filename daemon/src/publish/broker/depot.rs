//! Where messages become parcels, and wait until there is room on the way.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Parcel;
use crate::config::types::SinkConfig;
use crate::publish::queue::Published;

/// The parcels that are to go out.
#[derive(Debug)]
pub struct Depot {
    next_number: u64,
    fresh: VecDeque<Parcel>,
}

impl Depot {
    /// Of a sink that is set so.
    pub fn open(_config: &SinkConfig) -> Result<Self, String> {
        Ok(Self { next_number: 1, fresh: VecDeque::new() })
    }

    /// How many messages may come in, when there is room for so many on the way.
    pub fn may_take(&self, room: usize) -> usize {
        room.saturating_sub(self.fresh.len())
    }

    /// Takes messages in.
    pub fn put(&mut self, messages: &[Arc<Published>]) {
        for message in messages {
            self.fresh.push_back(parcel(self.next_number, message));
            self.next_number += 1;
        }
    }

    /// The next to go out.
    pub fn take(&mut self) -> Option<Parcel> {
        self.fresh.pop_front()
    }

    /// How many wait here.
    pub fn waiting(&self) -> u64 {
        self.fresh.len() as u64
    }
}

fn parcel(number: u64, published: &Published) -> Parcel {
    let message = published.message();
    let line = published.line();
    let line = line.slice(..line.len() - usize::from(line.ends_with(b"\n")));
    Parcel { number, id: message.id.clone(), camera: Arc::clone(&message.camera), line }
}
