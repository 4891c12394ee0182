//! What is wrong with one object, read whole with all that it names.

use crate::error::{StoreError, printable};
use crate::format::{Kind, Manifest, Name, Put, SHARED};
use crate::objects::Objects;
use crate::objects::read::{Depth, Record};

/// What is wrong with the object of an index record.
pub(in crate::procedures) fn wrong_with(
    objects: &Objects,
    put: &Put<'_>,
) -> Result<Option<String>, StoreError> {
    let damaged = |found: Result<Option<Box<Record>>, StoreError>| match found {
        Err(StoreError::Damaged { why, .. }) => Ok(Err(why.to_owned())),
        Err(error) => Err(error),
        Ok(found) => Ok(Ok(found)),
    };
    let hash = put.name.hash(objects.setup.hash_seed);
    // A check is no reading by users.
    let found = damaged(objects.uncounted(|| objects.find(put.name, hash, Depth::Whole)))?;
    let record = match found {
        Err(why) => return Ok(Some(why)),
        // Deleted meanwhile.
        Ok(None) => return Ok(None),
        Ok(Some(record)) => record,
    };
    match record.head.kind {
        Kind::Whole => Ok(None),
        Kind::Manifest => {
            let Some(manifest) = Manifest::decode(record.body()) else {
                return Ok(Some("its list of pieces is damaged".to_owned()));
            };
            for (part, &len) in manifest.piece_lens.iter().enumerate() {
                let piece = damaged(objects.find_internal(manifest.id, part as u32, Depth::Whole))?;
                match piece {
                    // Evicted: the object is, when it is next asked for.
                    Ok(None) if objects.setup.loses_parts() => return Ok(None),
                    Ok(Some(piece)) if piece.head.body_len == len => {}
                    Ok(_) => return Ok(Some(format!("piece {part} of {} is gone", printable(put.name.key)))),
                    Err(why) => return Ok(Some(format!("piece {part}: {why}"))),
                }
            }
            Ok(None)
        }
        Kind::Alias => {
            let id = objects.shared_id(&record)?;
            match damaged(objects.find_internal(id, SHARED, Depth::Whole))? {
                Ok(Some(shared)) => {
                    let key = crate::format::internal_key(id, SHARED);
                    let name = Name { internal: true, key: &key };
                    debug_assert_eq!(shared.key(), name.key);
                    Ok(None)
                }
                Ok(None) => Ok(Some("the object that it names is gone".to_owned())),
                Err(why) => Ok(Some(format!("the object that it names: {why}"))),
            }
        }
    }
}
