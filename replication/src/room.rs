//! Room that buffers keep.

/// How much room is worth keeping in a buffer that is filled and emptied again and again. What a burst took, such as a join, is given
/// back when nothing like it has come for a while; what comes once in 60 uses is kept, so that nothing is allocated for it. A use is
/// one in which there was anything: a frame without a packet says nothing about the next packet.
#[derive(Default)]
pub(crate) struct Room {
    /// The most that was used lately.
    most: usize,
}

/// By so much less the most counts with every use.
const FADES: usize = 64;
/// A buffer gives room back if it has more than so many times as much as was used at most.
const SLACK: usize = 4;
/// Buffers of up to so many items are not worth the trouble.
const LEAST: usize = 64;

impl Room {
    /// So much was used this time.
    pub(crate) fn note(&mut self, used: usize) {
        self.most = used.max(self.most - self.most.div_ceil(FADES));
    }

    /// What an empty buffer of that capacity should be cut down to, if it has too much.
    pub(crate) fn excess(&self, capacity: usize) -> Option<usize> {
        let worth = (self.most + self.most / 8).max(LEAST);
        (capacity > worth * SLACK).then_some(worth)
    }

    /// Empties a buffer after it was used.
    pub(crate) fn clear<T>(&mut self, buffer: &mut Vec<T>) {
        if buffer.is_empty() {
            return;
        }
        self.note(buffer.len());
        buffer.clear();
        if let Some(worth) = self.excess(buffer.capacity()) {
            buffer.shrink_to(worth);
        }
    }
}

/// Makes room for `len` items in a list that grows now and then: by an eighth at least instead of doubling, since it may stay like that.
pub(crate) fn make_room<T>(list: &mut Vec<T>, len: usize) {
    if len > list.capacity() {
        list.reserve_exact(len.max(list.capacity() + list.capacity() / 8) - list.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bursts_room_is_given_back_and_what_comes_again_keeps_its_own() {
        let (mut room, mut buffer) = (Room::default(), Vec::new());
        let mut fill = |n: usize| {
            buffer.extend(0..n);
            room.clear(&mut buffer);
            buffer.capacity()
        };
        assert!(fill(10_000) >= 10_000);
        let after = (0..300).map(|_| fill(100)).last().unwrap();
        assert!((100..1000).contains(&after), "{after}");
        // a hundred times as much every 60 uses, with others between in which there is nothing, costs nothing from the second time on
        fill(1000);
        let kept = fill(10);
        for n in 0..600 {
            fill(0);
            assert_eq!(fill(if n % 60 == 59 { 1000 } else { 10 }), kept, "room was given back that was needed again");
        }
    }

    #[test]
    fn lists_grow_by_an_eighth() {
        let (mut list, mut grown) = (Vec::new(), 0);
        for n in 1..=10_000 {
            let before = list.capacity();
            make_room(&mut list, n);
            list.push(n);
            grown += usize::from(list.capacity() != before);
            assert!(list.capacity() <= n + n / 8 + 1, "{n}: {}", list.capacity());
        }
        assert!(grown < 80, "{grown}");
    }
}
