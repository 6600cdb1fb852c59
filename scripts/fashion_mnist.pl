#!/usr/bin/perl
# fashion_mnist.pl train|test - the rows of Fashion-MNIST for COPY ... FROM STDIN (FORMAT binary).
#
# Columns: id int, from 1; label int, 0 to 9; pixels bytea, the 784 bytes of a 28 x 28 image.  The files are the
# gzipped ones of the dataset, in IDX format, from the folder that FASHION_MNIST names.

use strict;
use warnings;

my $folder = $ENV{FASHION_MNIST} || '/usr/share/datasets/fashion-mnist';
my %prefix = (train => 'train', test => 't10k');
my $prefix = $prefix{ $ARGV[0] // '' } or die "usage: $0 train|test\n";

sub open_idx
{
	my ($name, $magic, $header) = @_;
	my $path = "$folder/$name.gz";

	open my $file, '-|', 'gzip', '-dc', $path or die "could not run gzip: $!\n";
	binmode $file;
	read($file, my $bytes, 4 * $header) == 4 * $header or die "$path is too short\n";
	my ($found, $count, @shape) = unpack 'N*', $bytes;
	die "$path is not an IDX file of the kind expected\n" if $found != $magic;
	return ($file, $count, @shape);
}

my ($labels, $count) = open_idx("$prefix-labels-idx1-ubyte", 0x801, 2);
my ($images, $images_count, $height, $width) = open_idx("$prefix-images-idx3-ubyte", 0x803, 4);
die "labels and images do not match\n" if $count != $images_count;

my $size = $height * $width;
binmode STDOUT;
print "PGCOPY\n\377\r\n\0", pack('NN', 0, 0);
for my $id (1 .. $count)
{
	read($labels, my $label, 1) == 1 && read($images, my $pixels, $size) == $size
	  or die "the files end early\n";
	# Number of columns, then each column with its length before it, in network order.
	print pack('n NN NN N', 3, 4, $id, 4, ord $label, $size), $pixels;
}
print pack('n', 0xffff);
close STDOUT or die "could not write: $!\n";
