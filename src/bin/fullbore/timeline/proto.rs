//! As much of the protocol buffers' wire format as a trace needs.

/// A message that is being put together: its fields, one behind the other.
#[derive(Default)]
pub struct Message(Vec<u8>);

/// How the value of a field is laid down.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

impl Message {
    pub fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3 | VARINT);
        self.varint(value);
        self
    }

    pub fn fixed(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3 | FIXED64);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    pub fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    /// Seven bits a byte, the lowest first; all but the last have the eighth.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::Message;

    /// The examples of the format's own description.
    #[test]
    fn fields_are_laid_down_as_the_format_says() {
        assert_eq!(Message::default().number(1, 150).as_bytes(), [0x08, 0x96, 0x01]);
        let text = Message::default().text(2, "testing");
        assert_eq!(text.as_bytes(), b"\x12\x07testing");
        let within = Message::default().message(3, &Message::default().number(1, 150));
        assert_eq!(within.as_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(Message::default().fixed(47, 1).as_bytes(), [0xf9, 0x02, 1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
