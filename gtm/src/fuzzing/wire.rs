//! Parsers: what they accept is what it is read from.

use crate::wire::checksum::is_intact;
use crate::wire::{
    DESCRIPTOR_BYTES, Descriptor, HEADER_BYTES, Header, Kind, MAX_PAYLOAD_BYTES, MAX_POSITION,
    OPENING_BYTES, Opening,
};

/// Any bytes as headers.
pub fn header(bytes: &[u8]) {
    for bytes in bytes.chunks(HEADER_BYTES) {
        let Some(bytes) = bytes.first_chunk() else {
            return;
        };
        let Ok(header) = Header::parse(bytes) else {
            continue;
        };
        assert_eq!(&header.to_bytes(), bytes);
        assert!(header.frame_bytes() <= HEADER_BYTES + MAX_PAYLOAD_BYTES);
        match header.kind {
            Kind::Data => assert!(header.end_position() <= MAX_POSITION + 2 * header.charge()),
            _ => assert_eq!(header.frame_bytes(), HEADER_BYTES),
        }
        let _ = (header.is_intact_control(), header.reason());
        let _ = is_intact(&header, &[]);
    }
}

/// Any bytes as descriptors.
pub fn descriptor(bytes: &[u8]) {
    for bytes in bytes.chunks(DESCRIPTOR_BYTES) {
        let Some(bytes) = bytes.first_chunk() else {
            return;
        };
        if let Ok(descriptor) = Descriptor::parse(*bytes) {
            assert_eq!(&descriptor.to_bytes(), bytes);
        }
    }
}

/// Any bytes as an opening.
pub fn opening(bytes: &[u8]) {
    if let Ok(opening) = Opening::parse(bytes) {
        assert_eq!(opening.to_bytes(), bytes[..OPENING_BYTES]);
        assert!(opening.source_incarnation != 0 && opening.fragment_bytes != 0);
    }
}
