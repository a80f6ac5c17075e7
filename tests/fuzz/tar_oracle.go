// Prints how Go's archive/tar reads archives.
//
// Each archive on the standard input has its length before it, as four bytes, big endian. Each
// entry becomes a line: type, mode, owner, group, name, target, size, CRC-32 of the data. A line
// "end" or "error" follows the last entry.
package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

func main() {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriterSize(os.Stdout, 1<<20)
	defer out.Flush()
	for {
		var length uint32
		if err := binary.Read(in, binary.BigEndian, &length); err == io.EOF {
			return
		}
		data := make([]byte, length)
		if _, err := io.ReadFull(in, data); err != nil {
			panic(err)
		}
		show(tar.NewReader(bytes.NewReader(data)), out)
	}
}

func show(archive *tar.Reader, out io.Writer) {
	for {
		header, err := archive.Next()
		if err == io.EOF {
			fmt.Fprintln(out, "end")
			return
		}
		if err == nil && header.Typeflag == tar.TypeXGlobalHeader {
			continue // Engines skip it.
		}
		hash, size := crc32.NewIEEE(), int64(0)
		if err == nil {
			size, err = io.Copy(hash, archive)
		}
		if err != nil {
			fmt.Fprintln(out, "error")
			return
		}
		target := ""
		if header.Typeflag == tar.TypeLink || header.Typeflag == tar.TypeSymlink {
			target = header.Linkname
		}
		fmt.Fprintf(out, "%c %o %d %d %x %x %d %x\n", header.Typeflag, header.Mode&07777,
			header.Uid, header.Gid, header.Name, target, size, hash.Sum32())
	}
}
