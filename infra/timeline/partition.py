"""Key → partition, as every Kafka client computes it: murmur2 of the key's UTF-8 bytes, sign bit off, modulo.

All logs use this one function, so a capture device that writes with Java, librdkafka (`partitioner=murmur2_random`) or
kafka-python sends a session to the partition in which we look for it.
"""

from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """MurmurHash2 as Kafka's Java client defines it, as an unsigned 32-bit number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=65536)
def partition_of(key: str, partitions: int) -> int:
    return (murmur2(key.encode()) & 0x7FFFFFFF) % partitions
