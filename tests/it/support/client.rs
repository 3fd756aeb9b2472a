//! A client that does as it is told and reads strictly. Whatever does not come in time fails the test, and says what
//! had come.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::wire::{End, Fault, Message, Wire};
use super::{request, shown};

/// A raw connection to the program.
pub struct Client {
    wire: Wire,
}

impl Client {
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap_or_else(|e| panic!("connect to {address}: {e}"));
        Self { wire: Wire::tcp(stream) }
    }

    /// Over a connection that the test has made.
    pub fn over(wire: Wire) -> Self {
        Self { wire }
    }

    /// What TLS has agreed on.
    #[track_caller]
    pub fn session(&self) -> &rustls::ClientConnection {
        self.wire.session()
    }

    /// The same connection once more, for a thread that sends while this one reads.
    pub fn second_hand(&self) -> Self {
        Self { wire: self.wire.second_hand() }
    }

    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        assert!(self.wire.send(bytes.as_ref()), "the connection was gone before {} was sent", shown(bytes.as_ref()));
    }

    /// Sends what can be sent: the other side may refuse the rest.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.wire.send(bytes.as_ref())
    }

    /// Sends what is no TLS that anybody has agreed on, over a connection that speaks it.
    pub fn try_send_below(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.wire.send_below(bytes.as_ref())
    }

    /// Does nothing for a while: part of what this client does.
    pub fn pause(&mut self, millis: u64) {
        std::thread::sleep(Duration::from_millis(millis));
    }

    pub fn half_close(&mut self) {
        self.wire.half_close();
    }

    /// Goes away without a word.
    pub fn reset(mut self) {
        self.wire.reset_on_drop();
    }

    /// Whatever comes next.
    #[track_caller]
    pub fn some(&mut self) -> Vec<u8> {
        self.wire.some().unwrap_or_else(|fault| panic!("nothing came: {fault:?}"))
    }

    /// GETs a path of a host and reads the answer.
    #[track_caller]
    pub fn get(&mut self, host: &str, path: &str) -> Message {
        self.ask(request(&format!("GET {path}"), host, &[]))
    }

    /// Sends a request and reads the answer to it.
    #[track_caller]
    pub fn ask(&mut self, bytes: impl AsRef<[u8]>) -> Message {
        let bytes = bytes.as_ref();
        self.wire.send(bytes);
        let method: String = bytes.iter().take_while(|&&b| b != b' ').map(|&b| char::from(b)).collect();
        self.response_to(&method)
    }

    /// Reads the answer to a GET.
    #[track_caller]
    pub fn response(&mut self) -> Message {
        self.response_to("GET")
    }

    /// Reads the answer to a request of this method, whole.
    #[track_caller]
    pub fn response_to(&mut self, method: &str) -> Message {
        let mut message = self.response_head();
        if let Err(fault) = self.wire.response_body(method, &mut message) {
            panic!("{fault:?} in the body of {:?}, after {}", message.start, shown(&message.body));
        }
        message
    }

    /// Reads an answer that breaks off: as far as it came, and how it ended.
    #[track_caller]
    pub fn cut_response(&mut self) -> (Message, End) {
        let mut message = self.response_head();
        match self.wire.response_body("GET", &mut message) {
            Err(Fault::Ended(end)) => (message, end),
            other => panic!("the answer did not break off: {other:?}, {:?} {}", message.start, shown(&message.body)),
        }
    }

    /// Reads a head; its body stays for the caller.
    #[track_caller]
    pub fn response_head(&mut self) -> Message {
        self.wire.response_head().unwrap_or_else(|fault| panic!("{fault:?} instead of an answer"))
    }

    /// A head or the end of the connection without one.
    #[track_caller]
    pub fn answer_or_end(&mut self, method: &str) -> Result<Message, End> {
        match self.wire.response_head() {
            Ok(mut message) => match self.wire.response_body(method, &mut message) {
                Ok(()) => Ok(message),
                Err(fault) => panic!("{fault:?} in the body of {:?}", message.start),
            },
            Err(Fault::Ended(end)) => Err(end),
            Err(fault) => panic!("{fault:?} instead of an answer or an end"),
        }
    }

    /// The next bytes are exactly these.
    #[track_caller]
    pub fn expect(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        match self.wire.exactly(bytes.len()) {
            Ok(got) => assert_eq!(shown(&got), shown(bytes)),
            Err(fault) => panic!("{fault:?} instead of {}", shown(bytes)),
        }
    }

    /// Reads so many bytes.
    #[track_caller]
    pub fn exactly(&mut self, count: usize) -> Vec<u8> {
        self.wire.exactly(count).unwrap_or_else(|fault| panic!("{fault:?} instead of {count} bytes"))
    }

    /// Everything until the connection ends, and how it ends.
    #[track_caller]
    pub fn rest(&mut self) -> (Vec<u8>, End) {
        self.wire.until_end().unwrap_or_else(|fault| panic!("{fault:?}: the connection does not end"))
    }

    /// The connection ends, and nothing comes before that.
    #[track_caller]
    pub fn expect_end(&mut self) -> End {
        let (bytes, end) = self.rest();
        assert!(bytes.is_empty(), "before the end came {}", shown(&bytes));
        end
    }

    /// Reads and forgets until the connection ends.
    #[track_caller]
    pub fn drain(&mut self) -> End {
        self.wire.drain().unwrap_or_else(|fault| panic!("{fault:?}: the connection does not end"))
    }

    /// Nothing comes for a while, neither bytes nor an end: the while is the test.
    #[track_caller]
    pub fn expect_silence(&mut self, millis: u64) {
        self.wire.set_patience(Duration::from_millis(millis));
        match self.wire.some() {
            Err(Fault::Late) => {}
            Ok(bytes) => panic!("instead of nothing came {}", shown(&bytes)),
            Err(fault) => panic!("instead of nothing came {fault:?}"),
        }
        self.wire.set_patience(super::PATIENCE);
    }
}
