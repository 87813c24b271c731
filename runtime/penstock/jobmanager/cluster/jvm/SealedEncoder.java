package penstock;

import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.MessageToMessageEncoder;
import java.util.List;
import org.apache.spark.network.buffer.NettyManagedBuffer;
import org.apache.spark.network.protocol.Message;
import org.apache.spark.network.protocol.SslMessageEncoder;

/**
 * Spark's TLS encoder with a fix. It retains a message's buffer once more than it releases it. The writer of the
 * streaming shuffle reuses its buffers and checks whether they are free.
 */
public class SealedEncoder extends MessageToMessageEncoder {
  public SealedEncoder() {
    super(Message.class);
  }

  protected void encode(ChannelHandlerContext context, Object message, List out) throws Exception {
    SslMessageEncoder.INSTANCE.encode(context, (Message) message, out);
    if (((Message) message).body() instanceof NettyManagedBuffer) {
      ((Message) message).body().release();
    }
  }
}
