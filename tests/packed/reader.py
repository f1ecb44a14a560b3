"""Reads a packed file by docs/PACKED.md alone: reader.py FILE zero|number

Prints a line for each height: its block and its receipts, with a tab between them. The second
argument is the value of totalDifficulty. Makes both indexes again and compares them. Needs Python 3.11 and libzstd.
"""
import ctypes
import json
import sys
import zlib

ZSTD = ctypes.CDLL("libzstd.so.1")
ZSTD.ZSTD_createDCtx.restype = ctypes.c_void_p
ZSTD.ZSTD_decompress_usingDict.restype = ctypes.c_size_t
CONTEXT = ctypes.c_void_p(ZSTD.ZSTD_createDCtx())
FIELDS = """baseFeePerGas blobGasUsed blockExtraData blockGasCost difficulty excessBlobGas extDataGasUsed extDataHash
extraData gasLimit gasUsed logsBloom minDelayExcess minPriceExponent miner mixHash nonce parentBeaconBlockRoot
receiptsRoot settledExcess settledGasNumerator settledGasUnix settledHeight sha3Uncles size stateRoot targetExponent
timestamp timestampMilliseconds transactionsRoot""".split()
BYTES = set("""blockExtraData extDataHash extraData logsBloom miner mixHash nonce parentBeaconBlockRoot receiptsRoot
sha3Uncles stateRoot transactionsRoot""".split())


def unpack(frame, length, dictionary=b""):
    frame = b"\x28\xb5\x2f\xfd" + frame
    out = ctypes.create_string_buffer(length or 1)
    sizes = [ctypes.c_size_t(size) for size in (length, len(frame), len(dictionary))]
    found = ZSTD.ZSTD_decompress_usingDict(CONTEXT, out, sizes[0], frame, sizes[1], dictionary, sizes[2])
    assert found == length, found
    return out.raw[:length]


class Bytes:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        assert self.at <= len(self.data), "too short"
        return self.data[self.at - count : self.at]

    def byte(self):
        return self.take(1)[0]

    def big(self, count):
        return int.from_bytes(self.take(count), "big")

    def varint(self):
        sum, shift = 0, 0
        while True:
            byte = self.byte()
            sum |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return sum

    def section(self):
        length = self.varint()
        return unpack(self.data[self.at :], length) if length else b""

    def end(self):
        assert self.at == len(self.data), "too long"


# --- Keccak-256, RLP, blooms ----------------------------------------------------------------------


def constants():
    state, out = 1, []
    for _ in range(24):
        word = 0
        for bit in (0, 1, 3, 7, 15, 31, 63):
            word |= (state & 1) << bit
            state = state << 1 ^ (0x171 if state & 128 else 0)
        out.append(word)
    return out


ROUNDS, MASK, HASHES = constants(), (1 << 64) - 1, {}


def rotate(word, by):
    return (word << by | word >> (64 - by)) & MASK


def permute(a):
    for constant in ROUNDS:
        c = [a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20] for x in range(5)]
        a = [a[i] ^ c[(i + 4) % 5] ^ rotate(c[(i + 1) % 5], 1) for i in range(25)]
        x, y, last = 1, 0, a[1]
        for step in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            a[x + 5 * y], last = rotate(last, (step + 1) * (step + 2) // 2 % 64), a[x + 5 * y]
        a = [a[i] ^ ~a[i // 5 * 5 + (i + 1) % 5] & a[i // 5 * 5 + (i + 2) % 5] for i in range(25)]
        a[0] ^= constant
    return a


def keccak(message):
    if message not in HASHES:
        padded = bytearray(message + b"\x01" + bytes(-(len(message) + 1) % 136))
        padded[-1] |= 0x80
        state = [0] * 25
        for at in range(0, len(padded), 136):
            for lane in range(17):
                state[lane] ^= int.from_bytes(padded[at + 8 * lane : at + 8 * lane + 8], "little")
            state = permute(state)
        HASHES[message] = b"".join(lane.to_bytes(8, "little") for lane in state[:4])
    return HASHES[message]


def head(length, base):
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([base + length]) if length < 56 else bytes([base + 55 + len(size)]) + size


def rlp(item):
    if isinstance(item, list):
        content = b"".join(map(rlp, item))
        return head(len(content), 0xC0) + content
    if isinstance(item, int):
        item = item.to_bytes((item.bit_length() + 7) // 8, "big")
    return item if len(item) == 1 and item[0] < 128 else head(len(item), 0x80) + item


def bloom(logs):
    bits = 0
    for log in logs:
        for item in [log["address"], *log["topics"]]:
            found = keccak(item)
            for at in (0, 2, 4):
                bits |= 1 << (int.from_bytes(found[at : at + 2], "big") & 2047)
    return bits.to_bytes(256, "big")


# --- The file -------------------------------------------------------------------------------------


class File:
    def __init__(self, data):
        word = lambda at, size: int.from_bytes(data[at : at + size], "little")
        assert data[:8] == b"nevepack" and word(8, 4) == 1, "no packed file of version 1"
        assert zlib.crc32(data[:508]) == word(508, 4) and word(104, 8) == len(data)
        self.first, self.count, self.chain_id = word(16, 8), word(24, 4), word(32, 8)
        sections = []
        for at in range(112, 256, 24):
            start, length = word(at + 8, 8), word(at + 16, 8)
            sections.append(data[start : start + length])
            assert word(at, 4) == len(sections)
            assert len(sections) == 6 or zlib.crc32(sections[-1]) == word(at + 4, 4)
        directory, tables, dictionary, *self.indexes, frames = sections
        self.dictionary = Bytes(dictionary).section()
        self.hashes, self.frames, start = [data[72:104]], [], 0
        for number in range(self.count):
            entry = directory[40 * number : 40 * number + 40]
            end, crc = (int.from_bytes(entry[at : at + 4], "little") for at in (32, 36))
            height = (self.first + number).to_bytes(8, "little")
            assert zlib.crc32(height + frames[start:end]) == crc
            self.hashes.append(entry[:32])
            self.frames.append(frames[start:end])
            start = end
        self.read_tables(Bytes(Bytes(tables).section()))

    def read_tables(self, b):
        symbols = b.take(30)
        literals = b.take(b.varint())
        self.template = dict.fromkeys(FIELDS)
        self.template = header(self.template, self.first, Bytes(symbols), Bytes(literals))
        words, numbers, txs, logs = (b.varint() for _ in range(4))
        self.words = [word(b.take(code & 63), code >> 6) for code in b.take(words)]
        self.numbers = [b.big(b.byte()) for _ in range(numbers)]

        def short(length):
            at = b.varint()
            return self.words[at - 1] if at else b.take(length).rjust(32, b"\0")

        self.tx_shapes, self.log_shapes = [], []
        for _ in range(txs):
            flags = b.byte()
            to = address(short(20)) if flags & 8 else None
            length = b.varint()
            self.tx_shapes.append((flags, to, length, b.take(4) if length >= 4 else b""))
        for _ in range(logs):
            topics, of = b.byte(), address(short(20))
            topic = [short(32)] if topics else []
            self.log_shapes.append((topics, of, topic, b.varint()))
        self.after_tx = [b.varint() for _ in range(txs)]
        self.after_log = [b.varint() for _ in range(logs)]
        b.end()


def word(part, kind):
    return part.ljust(32, b"\0") if kind == 1 else part.rjust(32, b"\xff" if kind == 2 else b"\0")


def address(word):
    return word[12:]


def header(template, height, symbols, literals):
    out = {}
    for name in FIELDS:
        symbol, old = symbols.byte(), template[name]
        if symbol == 0:
            value = old
        elif symbol in (1, 2):
            value = None if symbol == 1 else "bloom"
        elif symbol == 3:
            value = int.from_bytes(out["timestamp"], "big") * 1000 + int.from_bytes(literals.take(2), "little")
        elif symbol == 4:
            value = height - literals.byte()
        elif symbol == 5:
            value = literals.take(literals.varint())
        elif symbol == 6:
            bit, value = 0, 0
            for _ in range(literals.varint()):
                bit += literals.varint()
                value |= 1 << (2047 - bit)
            value = value.to_bytes(256, "big")
        elif symbol < 128:
            value = literals.take(symbol - 16)
        else:
            value = int.from_bytes(old, "big") + literals.big(symbol - 128)
        out[name] = number_bytes(value) if isinstance(value, int) else value
    return out


def number_bytes(value):
    return value.to_bytes((value.bit_length() + 7) // 8, "big")


class Chunk:
    """Reads the streams of a chunk."""

    def __init__(self, file):
        self.file, self.recent, self.duties, self.txs = file, [], [bytes(32)] * 5, []

    def streams(self, symbols, literals):
        self.symbols, self.literals = Bytes(symbols), Bytes(literals)

    def entry(self, symbol, first):
        return symbol - first if symbol < 192 else 192 - first + (symbol - 192) * 256 + self.symbols.byte()

    def word(self):
        symbol = self.symbols.byte()
        if symbol == 0:
            return bytes(32)
        if symbol < 6:
            return self.duties[symbol - 1]
        if symbol < 38:
            return self.recent[-1 - (symbol - 6)]
        if symbol == 72:
            return self.recent[-1 - 32 - self.literals.byte()]
        if symbol > 72:
            return self.file.words[self.entry(symbol, 73)]
        count = symbol - 37 if symbol < 70 else self.literals.byte()
        found = word(self.literals.take(count), 0 if symbol < 70 else symbol - 69)
        if count >= 3:
            self.recent.append(found)
        return found

    def number(self):
        symbol = self.symbols.byte()
        return self.literals.big(symbol) if symbol < 17 else self.file.numbers[self.entry(symbol, 17)]

    def body(self, length):
        words = b"".join(self.word() for _ in range(length // 32))
        return words + self.literals.take(length % 32)

    def transaction(self):
        symbol = self.symbols.byte()
        if symbol:
            shape = self.entry(symbol, 1)
            flags, to, length, start = self.file.tx_shapes[shape]
        else:
            shape, flags = None, self.symbols.byte()
            to = address(self.word()) if flags & 8 else None
            length = self.number()
            start = self.literals.take(4) if length >= 4 else b""
        tx = {"shape": shape, "kind": flags & 3, "to": to}
        tx["chain"] = self.number() if flags & 4 else self.file.chain_id
        self.duties[1] = (to or b"").rjust(32, b"\0")
        self.duties[0] = sender = self.word()
        tx["from"], tx["nonce"], tx["gas"], tx["price"] = address(sender), self.number(), self.number(), self.number()
        tx["tip"] = self.number() if tx["kind"] == 3 else 0
        self.duties[2] = value = self.word()
        tx["value"] = int.from_bytes(value, "big")
        tx["input"] = start + self.body(length - len(start))
        tx["access"] = []
        if tx["kind"] >= 2:
            for _ in range(self.number()):
                of = address(self.word())
                tx["access"].append([of, [self.word() for _ in range(self.number())]])
        tx["duties"] = self.duties[:3]
        self.txs.append(tx)

    def receipt(self, tx):
        self.duties = tx["duties"] + [bytes(32)] * 2
        flags = self.symbols.byte()
        tx["ok"] = flags & 1
        tx["paid"] = self.number() if flags & 2 else None
        tx["used"] = self.number()
        tx["logs"] = []
        likely = None if tx["shape"] is None else self.file.after_tx[tx["shape"]]
        last = bytes(32)
        while True:
            symbol, shape = self.symbols.byte(), None
            if symbol == 0 or symbol == 2 and likely == 0:
                return
            if symbol == 1:
                count = self.symbols.byte()
                of = address(self.word())
                topics = [self.word()] if count else []
                length = self.number()
            else:
                shape = likely - 1 if symbol == 2 else self.entry(symbol, 3)
                count, of, topics, length = self.file.log_shapes[shape]
            self.duties[4], last = last, of.rjust(32, b"\0")
            self.duties[3] = last
            topics = topics + [self.word() for _ in range(count - len(topics))]
            tx["logs"].append({"address": of, "topics": topics, "data": self.body(length)})
            likely = None if shape is None else self.file.after_log[shape]


# --- The texts ------------------------------------------------------------------------------------


def hexed(data):
    return '"0x' + data.hex() + '"'


def quantity(value):
    return f'"{value:#x}"'


def listed(items):
    return "[" + ",".join(items) + "]"


def member(items):
    return "{" + ",".join(f'"{name}":{value}' for name, value in items if value is not None) + "}"


def signed(tx, signature):
    """Returns v, r, s, the parity and the hash."""
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    parity, s = s >> 255, s & ((1 << 255) - 1)
    v = [27 + parity, tx["chain"] * 2 + 35 + parity, parity, parity][tx["kind"]]
    fees = [tx["tip"], tx["price"]] if tx["kind"] == 3 else [tx["price"]]
    fields = [tx["nonce"], *fees, tx["gas"], tx["to"] or b"", tx["value"], tx["input"]]
    if tx["kind"] < 2:
        return v, r, s, parity, keccak(rlp(fields + [v, r, s]))
    encoded = rlp([tx["chain"], *fields, tx["access"], v, r, s])
    return v, r, s, parity, keccak(bytes([tx["kind"] - 1]) + encoded)


def price(tx, base):
    return tx["price"] if tx["kind"] < 3 or base is None else min(tx["price"], base + tx["tip"])


def transaction(tx, at, block, base):
    v, r, s, parity, found = tx["signed"]
    kind = tx["kind"]
    access = [member([("address", hexed(of)), ("storageKeys", listed(map(hexed, keys)))]) for of, keys in tx["access"]]
    return member([
        *block, ("from", hexed(tx["from"])), ("gas", quantity(tx["gas"])), ("gasPrice", quantity(price(tx, base))),
        ("maxFeePerGas", quantity(tx["price"]) if kind == 3 else None),
        ("maxPriorityFeePerGas", quantity(tx["tip"]) if kind == 3 else None), ("hash", hexed(found)),
        ("input", hexed(tx["input"])), ("nonce", quantity(tx["nonce"])), ("to", hexed(tx["to"]) if tx["to"] else "null"),
        ("transactionIndex", quantity(at)), ("value", quantity(tx["value"])), ("type", quantity(max(kind - 1, 0))),
        ("accessList", listed(access) if kind >= 2 else None), ("chainId", quantity(tx["chain"]) if kind else None),
        ("v", quantity(v)), ("r", quantity(r)), ("s", quantity(s)), ("yParity", quantity(parity) if kind >= 2 else None),
    ])


def receipt(tx, at, block, base, gas, number):
    place = [("transactionHash", hexed(tx["signed"][4])), ("transactionIndex", quantity(at))]
    logs = [member([
        ("address", hexed(log["address"])), ("topics", listed(map(hexed, log["topics"]))), ("data", hexed(log["data"])),
        block[1], *place, block[0], ("logIndex", quantity(number + index)), ("removed", "false"),
    ]) for index, log in enumerate(tx["logs"])]
    created = "null" if tx["to"] else hexed(keccak(rlp([tx["from"], tx["nonce"]]))[12:])
    paid = price(tx, base) if tx["paid"] is None else tx["paid"]
    return member([
        *block, ("contractAddress", created), ("cumulativeGasUsed", quantity(gas)), ("effectiveGasPrice", quantity(paid)),
        ("from", hexed(tx["from"])), ("gasUsed", quantity(tx["used"])), ("logs", listed(logs)),
        ("logsBloom", hexed(bloom(tx["logs"]))), ("status", quantity(tx["ok"])),
        ("to", hexed(tx["to"]) if tx["to"] else "null"), *place, ("type", quantity(max(tx["kind"] - 1, 0))),
    ])


def texts(frame, height, total):
    at = frame.varint()
    pair = []
    for _ in range(2):
        length, packed = frame.varint(), frame.varint()
        pair.append(unpack(frame.take(packed), length).decode())
    if at:
        assert pair[0][: at - 1].endswith('"totalDifficulty":'), "another place"
        pair[0] = pair[0][: at - 1] + total + pair[0][at - 1 :]
    return pair


def height_texts(file, index, total_difficulty):
    height, block_hash, parent = file.first + index, file.hashes[index + 1], file.hashes[index]
    total = quantity(height if total_difficulty == "number" else 0)
    frame = Bytes(file.frames[index])
    form = frame.byte()
    if form == 2:
        return texts(frame, height, total)
    assert form == 0, "an unknown form"
    count, _, groups = frame.varint(), frame.varint(), frame.varint()
    lengths = []
    for at in range(groups):
        lengths.append((frame.varint(), frame.varint()))
        if at + 1 < groups:
            [frame.varint() for _ in range(3)]
    literals = Bytes(frame.take(frame.varint()))
    signatures = [frame.take(64) for _ in range(count)]
    values, txs = None, []
    for packed, length in lengths:
        content = Bytes(unpack(frame.take(packed), length, file.dictionary))
        symbols = Bytes(content.take(content.varint()))
        if values is None:
            values = header(file.template, height, symbols, literals)
            base = values["baseFeePerGas"]
            base = None if base is None else int.from_bytes(base, "big")
            symbol = symbols.byte()
            paid = literals.big(symbol - 16) if symbol else base
        chunks = [[content.varint() for _ in range(7)] for _ in range(content.varint())]
        for transactions, _, _, *streams in chunks:
            chunk = Chunk(file)
            chunk.streams(content.take(streams[0]), content.take(streams[1]))
            for _ in range(transactions):
                chunk.transaction()
            chunk.streams(content.take(streams[2]), content.take(streams[3]))
            for tx in chunk.txs:
                chunk.receipt(tx)
            txs += chunk.txs
        content.end()
    frame.end()
    for tx, signature in zip(txs, signatures, strict=True):
        tx["signed"] = signed(tx, signature)
    block = [("blockHash", hexed(block_hash)), ("blockNumber", quantity(height))]
    receipts, gas, number = [], 0, 0
    for at, tx in enumerate(txs):
        gas += tx["used"]
        receipts.append(receipt(tx, at, block, paid, gas, number))
        number += len(tx["logs"])
    if values["logsBloom"] == "bloom":
        values["logsBloom"] = bloom([log for tx in txs for log in tx["logs"]])
    shown = {name: hexed(value) if name in BYTES else quantity(int.from_bytes(value, "big"))
             for name, value in values.items() if value is not None}
    shown |= {"hash": hexed(block_hash), "number": quantity(height), "parentHash": hexed(parent), "uncles": "[]"}
    shown |= {"totalDifficulty": total}
    shown["transactions"] = listed(transaction(tx, at, block, base) for at, tx in enumerate(txs))
    return member(sorted(shown.items())), listed(receipts)


# --- The indexes ----------------------------------------------------------------------------------


def varint(value):
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def words(values):
    return b"".join(value.to_bytes(4, "little") for value in values)


def bucket_bits(entries):
    return max(1, entries // 16).bit_length() - 1


def hash_index(places):
    """Makes the section of hashes, each with its height and ordinal."""
    bits = bucket_bits(len(places))
    height_bits, ordinal_bits = (max(place[at] for place in places).bit_length() for at in (1, 2))
    size = (height_bits + ordinal_bits + 20 + 7) // 8
    rest_bits, buckets = 8 * size - height_bits - ordinal_bits, [[] for _ in range(1 << bits)]
    for found, height, ordinal in places:
        prefix = int.from_bytes(found[:8], "big")
        rest = (prefix << bits & MASK) >> 64 - rest_bits
        buckets[prefix >> 64 - bits].append((rest << height_bits | height) << ordinal_bits | ordinal)
    starts = [sum(map(len, buckets[:at])) for at in range(1 << bits)]
    entries = [entry.to_bytes(size, "little") for bucket in buckets for entry in sorted(bucket)]
    return words([len(places)]) + bytes([bits, height_bits, ordinal_bits, size]) + words(starts) + b"".join(entries)


def term(position, value):
    """Returns the low 40 bits of a term: FNV-1a of the position and the value."""
    out = 0xCBF29CE484222325
    for byte in bytes([position]) + value:
        out = (out ^ byte) * 0x100000001B3 & MASK
    return (out or 1) & (1 << 40) - 1


def log_index(terms, count):
    """Makes the section of terms, each with the indexes of its heights."""
    bits, size = min(24, bucket_bits(len(terms))), (count + 7) // 8
    buckets = [b""] * (1 << bits)
    for of, heights in sorted(terms.items()):
        if len(heights) > size:
            found = sum(1 << height for height in heights).to_bytes(size, "little")
        else:
            found = b"".join(varint(b - a) for a, b in zip([0] + heights, heights))
        rest = (of >> bits).to_bytes((40 - bits + 7) // 8, "little")
        buckets[of & (1 << bits) - 1] += rest + varint(len(heights)) + found
    ends = [sum(map(len, buckets[: at + 1])) for at in range(1 << bits)]
    return bytes([bits]) + words(ends) + b"".join(buckets)


def indexes(pairs):
    """Makes both indexes of the texts of all heights."""
    unhex = lambda text: bytes.fromhex(text[2:])
    places, terms = [], {}
    for height, (block, receipts) in enumerate(pairs):
        block = json.loads(block)
        found = [block["hash"], *(tx["hash"] for tx in block["transactions"])]
        places += [(unhex(text), height, ordinal) for ordinal, text in enumerate(found)]
        logs = [log for receipt in json.loads(receipts) for log in receipt["logs"]]
        of = {term(at, unhex(text)) for log in logs for at, text in enumerate([log["address"], *log["topics"]])}
        for one in of:
            terms.setdefault(one, []).append(height)
    return [hash_index(places), log_index(terms, len(pairs))]


def main():
    with open(sys.argv[1], "rb") as file:
        file = File(file.read())
    pairs = [height_texts(file, index, sys.argv[2]) for index in range(file.count)]
    assert indexes(pairs) == file.indexes, "other indexes"
    print(*("\t".join(pair) for pair in pairs), sep="\n")


main()
