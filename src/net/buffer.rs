//! Bytes on their way from one socket to another.

/// How large a buffer is when it is fresh: a head and what comes with it, or most small messages whole.
pub(crate) const SMALL: usize = 16 * 1024;

/// How large it gets once a body has filled it: fewer, larger reads.
pub(crate) const LARGE: usize = 64 * 1024;

/// Where the first byte is put, so that a head can grow a little in front of a body that stays where it is.
const HEADROOM: usize = 64;

/// A buffer that is filled at its end and emptied at its front.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Buffer {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; SMALL].into_boxed_slice(), start: HEADROOM, end: HEADROOM }
    }

    /// One that a stream of bytes fills in fewer reads.
    pub(crate) fn large() -> Self {
        Self { bytes: vec![0; LARGE].into_boxed_slice(), start: HEADROOM, end: HEADROOM }
    }

    /// What has been filled and not emptied.
    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether nothing more can be put behind the data.
    pub(crate) fn is_full(&self) -> bool {
        self.end == self.bytes.len()
    }

    /// Where the next bytes may be put: [`Buffer::filled`] says how many were.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.is_empty() {
            self.clear();
        }
        &mut self.bytes[self.end..]
    }

    pub(crate) fn filled(&mut self, count: usize) {
        self.end = self.bytes.len().min(self.end + count);
    }

    /// Empties so many bytes from the front.
    pub(crate) fn eat(&mut self, count: usize) {
        self.start = self.end.min(self.start + count);
    }

    pub(crate) fn clear(&mut self) {
        self.start = HEADROOM;
        self.end = HEADROOM;
    }

    /// Makes room behind the data: by moving it to the front, and where that is not enough by growing to `most` bytes
    /// of data. Gives `false` when the data already fills that.
    pub(crate) fn make_room(&mut self, most: usize) -> bool {
        if self.end < self.bytes.len() {
            return true;
        }
        if self.start > HEADROOM {
            self.bytes.copy_within(self.start..self.end, HEADROOM);
            self.end = HEADROOM + self.end - self.start;
            self.start = HEADROOM;
            return true;
        }
        let size = (self.bytes.len() * 2).min(most + HEADROOM);
        if size <= self.bytes.len() {
            return false;
        }
        self.resize(size);
        true
    }

    /// Becomes [`LARGE`], where it is not yet: the last read filled all of it, so more is coming.
    pub(crate) fn enlarge(&mut self) {
        if self.bytes.len() < LARGE {
            self.resize(LARGE);
        }
    }

    fn resize(&mut self, size: usize) {
        let mut bytes = vec![0; size].into_boxed_slice();
        bytes[self.start..self.end].copy_from_slice(&self.bytes[self.start..self.end]);
        self.bytes = bytes;
    }

    /// Puts `new` in the place of the first `old` bytes; what is behind them stays where it is if there is room.
    pub(crate) fn replace_front(&mut self, old: usize, new: &[u8]) {
        let behind = self.end.min(self.start + old);
        if let Some(start) = behind.checked_sub(new.len()) {
            self.start = start;
        } else {
            let rest = self.bytes[behind..self.end].to_vec();
            self.start = 0;
            self.end = new.len() + rest.len();
            if self.end > self.bytes.len() {
                self.bytes = vec![0; self.end].into_boxed_slice();
            }
            self.bytes[new.len()..self.end].copy_from_slice(&rest);
        }
        self.bytes[self.start..self.start + new.len()].copy_from_slice(new);
    }

    /// Whether it is of the size of a fresh one.
    pub(crate) fn is_small(&self) -> bool {
        self.bytes.len() == SMALL
    }

    /// Whether it is of the size that [`Buffer::enlarge`] makes.
    pub(crate) fn is_large(&self) -> bool {
        self.bytes.len() == LARGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(data: &[u8]) -> Buffer {
        let mut buffer = Buffer::new();
        buffer.room()[..data.len()].copy_from_slice(data);
        buffer.filled(data.len());
        buffer
    }

    #[test]
    fn a_head_may_shrink_grow_a_little_or_grow_a_lot() {
        let long = vec![b'x'; 100_000];
        for new in [&b"short"[..], b"a head that is longer than it was", &long] {
            let mut buffer = with(b"the head|the body");
            buffer.replace_front(9, new);
            assert_eq!(buffer.data(), [new, b"the body"].concat());
        }
    }

    #[test]
    fn it_grows_to_its_limit_and_not_beyond() {
        let mut buffer = with(&[b'x'; SMALL - HEADROOM]);
        assert!(buffer.room().is_empty());
        buffer.eat(10);
        assert!(buffer.make_room(SMALL - HEADROOM));
        assert_eq!((buffer.len(), buffer.room().len()), (SMALL - HEADROOM - 10, 10));
        buffer.filled(10);
        assert!(!buffer.make_room(SMALL - HEADROOM));
        assert!(buffer.make_room(LARGE));
        assert_eq!(buffer.len(), SMALL - HEADROOM);
        assert!(buffer.data().iter().all(|&byte| byte == b'x' || byte == 0));
    }
}
