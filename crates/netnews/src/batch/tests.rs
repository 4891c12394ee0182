use std::io::{self, Read};

use proptest::prelude::*;

use super::*;

fn batch(articles: &[Vec<u8>], gzip: bool) -> Vec<u8> {
    let mut writer = if gzip { BatchWriter::gzip(Vec::new()) } else { BatchWriter::new(Vec::new()) };
    for article in articles {
        writer.write(article).expect("memory");
    }
    writer.finish().expect("memory")
}

/// Offset, bytes and kind.
type Damage = (u64, u64, Broken);

/// All of it: articles, and damages.
fn read(bytes: impl Read, limit: usize) -> (Vec<Vec<u8>>, Vec<Damage>) {
    let mut reader = BatchReader::with_limit(bytes, limit);
    let (mut articles, mut damages) = (vec![], vec![]);
    loop {
        match reader.next() {
            Ok(Some(article)) => articles.push(article.to_vec()),
            Ok(None) => return (articles, damages),
            Err(BatchError::Damaged { offset_bytes, bytes, why }) => {
                assert!(reader.damaged().len() as u64 <= bytes);
                damages.push((offset_bytes, bytes, why));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Gives one byte to seven at a time.
struct Dribble<'a>(&'a [u8], usize);

impl Read for Dribble<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.1 = self.1 % 7 + 1;
        let some = self.1.min(self.0.len()).min(into.len());
        let (now, later) = self.0.split_at(some);
        into[..some].copy_from_slice(now);
        self.0 = later;
        Ok(some)
    }
}

#[test]
fn input_without_a_count_line_is_one_article() {
    assert_eq!(read(&b"Path: x\n\n#! rnews 5\nbody"[..], 100).0, [b"Path: x\n\n#! rnews 5\nbody"]);
    assert_eq!(read(&b""[..], 100), (vec![], vec![]));
    assert_eq!(read(&b"too large"[..], 5), (vec![], vec![(0, 9, Broken::TooLarge)]));
}

#[test]
fn a_wrong_count_costs_its_article_alone_and_is_told_with_its_place() {
    let low = b"#! rnews 1\naa\n#! rnews 3\nbb\n".as_slice();
    assert_eq!(read(low, 100), (vec![b"bb\n".to_vec()], vec![(0, 14, Broken::BadCount)]));
    let high = b"#! rnews 3\naa\n#! rnews 12\nbb\n#! rnews 3\ncc\n".as_slice();
    let (articles, damages) = read(high, 100);
    assert_eq!(articles, [b"aa\n", b"cc\n"]);
    assert_eq!(damages, [(14, 15, Broken::BadCount)]);
    let beyond_the_end = b"#! rnews 99\naa\n#! rnews 3\nbb\n".as_slice();
    assert_eq!(read(beyond_the_end, 100), (vec![b"bb\n".to_vec()], vec![(0, 15, Broken::Truncated)]));
    let beyond_the_bound = b"#! rnews 999\naa\n#! rnews 3\nbb\n".as_slice();
    assert_eq!(read(beyond_the_bound, 100), (vec![b"bb\n".to_vec()], vec![(0, 16, Broken::TooLarge)]));
    let no_number = b"#! rnews x\naa\n#! rnews 3\nbb\n".as_slice();
    assert_eq!(read(no_number, 100), (vec![b"bb\n".to_vec()], vec![(0, 14, Broken::BadCount)]));
}

#[test]
fn gzip_is_unpacked_with_or_without_its_line_and_compress_is_refused_with_advice() {
    let packed = batch(&[b"one".to_vec(), b"two\n".to_vec()], true);
    assert_eq!(read(&packed[..], 100).0, [b"one".to_vec(), b"two\n".to_vec()]);
    let with_line = [b"#! cunbatch\n", &packed[..]].concat();
    assert_eq!(read(Dribble(&with_line, 0), 100).0, [b"one".to_vec(), b"two\n".to_vec()]);
    for compressed in [&b"#! cunbatch\n\x1f\x9d\x90abc"[..], b"\x1f\x9d\x90abc", b"#! cunbatch\nwhat"] {
        let mut reader = BatchReader::new(compressed);
        let error = reader.next().expect_err("not read here");
        assert!(error.to_string().contains("gzip -dc"), "{error}");
        assert!(matches!(reader.next(), Ok(None)));
    }
    let mut cut = BatchReader::new(&packed[..packed.len() / 2]);
    assert!(matches!(cut.next(), Err(BatchError::Io { .. })), "a packed batch cut short is no shorter batch");
}

#[test]
fn damage_longer_than_the_bound_is_skipped_in_bounded_memory_and_counted_whole() {
    let mut bytes = b"#! rnews 1\n".to_vec();
    bytes.extend(std::iter::repeat_n(b'x', 3 << 20));
    bytes.extend(b"\n#! rnews 2\nok");
    let mut reader = BatchReader::with_limit(&bytes[..], 1000);
    assert!(matches!(reader.next(), Err(BatchError::Damaged { .. })));
    assert!(reader.damaged().len() <= 1000);
    assert_eq!(reader.next().expect("found again"), Some(&b"ok"[..]));
    assert_eq!((reader.damaged_bytes(), reader.resyncs()), ((3 << 20) + 12, 1));
}

fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"#! rnews 5\n".to_vec()),
        Just(b"\n#! rnews 0\n".to_vec()),
        Just(b"#!".to_vec()),
        Just(b"#! rnews 99999999999999999999\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\x1f\x8b".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..60),
    ];
    proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn what_is_written_is_read_whatever_is_in_it(
        articles in proptest::collection::vec(hostile(), 1..12), gzip: bool,
    ) {
        let bytes = batch(&articles, gzip);
        prop_assert_eq!(read(Dribble(&bytes, 0), 4000), (articles, vec![]));
    }

    #[test]
    fn no_bytes_panic_and_every_byte_is_in_an_article_or_counted_as_damage(
        bytes in hostile(), limit in 1_usize..200,
    ) {
        let bytes = [b"#! rnews 3\nabc", &bytes[..]].concat();
        let mut reader = BatchReader::with_limit(Dribble(&bytes, 0), limit);
        let (mut whole, mut calls) = (0, 0);
        loop {
            calls += 1;
            prop_assert!(calls < 1000, "it never ends");
            match reader.next() {
                Ok(Some(article)) => whole += article.len() as u64 + format!("#! rnews {}\n", article.len()).len() as u64,
                Ok(None) => break,
                Err(BatchError::Damaged { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        // Counts with leading zeros or blanks are longer than we write them.
        prop_assert!(whole + reader.damaged_bytes() <= bytes.len() as u64);
        prop_assert!(bytes.windows(2).any(|two| two == b" \n" || two == b"00" || two == b" 0")
            || whole + reader.damaged_bytes() == bytes.len() as u64);
    }
}
