-- The tables of the example, as a user who owns them: psql -f shop.sql. The server needs wal_level = logical.
create table orders (id bigint primary key, customer text not null, cents bigint not null);
alter table orders replica identity full; -- the log shall have rows as they were, for they are taken off the totals
create table totals (customer text primary key, orders bigint not null, cents bigint not null);
create publication shop for table orders;
